// Starts `dagc lsp` for texts of the .dag language.
"use strict";
const { commands, window, workspace } = require("vscode");

let client;

async function start() {
  const [command, ...args] = workspace.getConfiguration("dag").get("server");
  try {
    const { LanguageClient } = require("vscode-languageclient/node"); // absent before `npm install`
    client = new LanguageClient(
      "dagc",
      "dagc",
      { command, args },
      {
        documentSelector: [{ language: "dag" }],
        synchronize: { fileEvents: workspace.createFileSystemWatcher("**/*.{dag,cu,cuh,cpp,cc,cxx,h,hpp,hh}") },
      },
    );
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `dagc: cannot start \`${[command, ...args].join(" ")}\`: ${error.message ?? error}. ` +
        "Install it with pip install 'dagc[lsp]', or name its command in the setting dag.server.",
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function restart() {
  await stop().catch(() => {}); // one that has failed to start cannot be stopped
  await start();
}

function activate(context) {
  context.subscriptions.push(
    commands.registerCommand("dag.restart", restart),
    workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("dag.server")) restart();
    }),
  );
  return start();
}

module.exports = { activate, deactivate: stop };
