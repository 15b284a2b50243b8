// Simulates traversals of a program on many ranks by SimGrid: an actor for the CPU of each rank, and one for each of its streams.
//
//   simulate PLATFORM PROBLEM < TRAVERSALS
//
// Each line of the standard input is a space of the problem and the rows of a traversal (`kind a b;`, as runners execute them,
// dagc/runner.hpp); the answer to each is one line: seconds of an iteration, and the rank that took the most. Problems are
// written by dagc/study/simulated.py:
//
//   ranks N rounds N                   // iterations of each traversal, one after the other
//   calls RECORD WAIT SYNC             // seconds of the CPU
//   wakes STREAM CPU                   // seconds until a stream that has run out of work, or waits for an event, goes on; the CPU
//   space                              // each space: its ops, by number
//   order RANK ...                     // which rank each process runs, if not that of its number
//   sends RANK TO BYTES                // in an iteration, what decides which ranks share a host
//   op KIND CALL WORK PAIRS MOVER EXCHANGE   // seconds of the CPU, and of the stream, or of the CPU where it runs there
//   message OP RANK NUMBER TO BYTES FROM
//   group N RANK ...                   // ranks of a communicator, in its order
//   round OP GROUP DISTANCE BYTES      // of a collective: each rank of a group (-1: of all) sends to the one at this distance
//   idle OP RANK                       // the op does nothing on this rank
//
// A line `factors CALLS WORK MESSAGES` has no answer: from then on calls of the CPU, work and bytes of messages count so many times.
//
// PAIRS: `within` moves the messages between ranks of one host, `between` the others, `all` every message.
// MOVER `cpu`: messages of more than 64 KiB between ranks of one host are copied into shared memory by the CPU of the sender and out of it
// by that of the receiver, in pieces, so at the same time, while each is in a wait for messages, one copy after the other; a message of a
// rank to itself by the call that posts its second end. `link`: the network moves them.
// Work of an op that `fills` the GPU delays that of all that share it and are ready later.
// Processes fill the hosts in the order of their names, one on each core. A line `hosts` is answered with the first process on the
// host of each, `near SPACE` with the rank that each runs, for the fewest bytes between hosts. A message of up to 64 KiB leaves when it is posted, a larger
// one when both ends are. If ranks wait for each other for ever, the answer is a line `deadlock`, and for each rank of the cycle
// `RANK PEER MESSAGE EXCHANGE;`: it waits for this message to or from the peer. Without a cycle the last peer has ended.
#include <simgrid/s4u.hpp>

#include "dagc/rank_order.hpp"

#include <algorithm>
#include <cctype>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

namespace s4u = simgrid::s4u;

constexpr std::uint64_t kEager = 65536;
enum Kind { issue, record, wait_in_stream, wait_of_cpu };

struct Message {
  std::size_t number;
  int to, from;  // negative: there is no such end
  std::uint64_t bytes;
};

struct Op {
  std::string kind;  // on_stream, shares and fills (the GPU of the rank), blocking, on_cpu, send, receive, sent, received, exchange, begin, end (of a collective)
  double call = 0, work = 0;
  std::string pairs, mover, exchange;
  std::size_t key = 0;  // of the exchange
  std::map<int, std::vector<Message>> messages;  // by rank
  std::map<int, bool> idle;
  std::map<int, std::vector<std::pair<int, std::uint64_t>>> rounds;  // by group
};

struct Row {
  int kind, a, b;
};

struct Simulated {
  std::vector<Op> ops;
  std::vector<int> order;  // the rank of each process, empty: that of its number
  std::map<int, std::map<int, std::int64_t>> sends;  // bytes by sender and receiver
};

struct Problem {
  int ranks = 0, rounds = 0;
  double calls = 1, work = 1, messages = 1;  // factors
  double record = 0, wait = 0, sync = 0, stream_wakes = 0, cpu_wakes = 0;
  std::vector<Simulated> spaces;
  std::vector<std::vector<int>> groups;
  std::vector<std::map<int, int>> place;  // of a rank in a group
  std::map<std::string, std::size_t> exchanges;

  void scale(double of_calls, double of_work, double of_messages) {
    for (double* const seconds : {&record, &wait, &sync, &stream_wakes, &cpu_wakes}) *seconds *= of_calls / calls;
    for (Simulated& space : spaces)
      for (Op& op : space.ops) {
        op.call *= of_calls / calls;
        op.work *= of_work / work;
      }
    calls = of_calls, work = of_work, messages = of_messages;
  }

  std::uint64_t sent(std::uint64_t bytes) const { return static_cast<std::uint64_t>(messages * static_cast<double>(bytes)); }
};

Problem read(const char* path) {
  Problem out;
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word == "ranks") {
      file >> out.ranks >> word >> out.rounds;
    } else if (word == "calls") {
      file >> out.record >> out.wait >> out.sync;
    } else if (word == "wakes") {
      file >> out.stream_wakes >> out.cpu_wakes;
    } else if (word == "space") {
      out.spaces.emplace_back();
    } else if (word == "op") {
      Op op;
      file >> op.kind >> op.call >> op.work >> op.pairs >> op.mover >> op.exchange;
      op.key = out.exchanges.emplace(op.exchange, out.exchanges.size()).first->second;
      out.spaces.back().ops.push_back(op);
    } else if (word == "order") {
      std::vector<int>& order = out.spaces.back().order;
      for (int rank = 0; static_cast<int>(order.size()) < out.ranks && file >> rank;) order.push_back(rank);
    } else if (word == "sends") {
      int rank = 0, to = 0;
      std::int64_t bytes = 0;
      file >> rank >> to >> bytes;
      out.spaces.back().sends[rank][to] += bytes;
    } else if (word == "message") {
      std::size_t op = 0;
      int rank = 0;
      Message m{};
      file >> op >> rank >> m.number >> m.to >> m.bytes >> m.from;
      out.spaces.back().ops[op].messages[rank].push_back(m);
    } else if (word == "group") {
      std::size_t members = 0;
      file >> members;
      std::vector<int>& group = out.groups.emplace_back(members);
      auto& place = out.place.emplace_back();
      for (std::size_t i = 0; i < members; ++i) {
        file >> group[i];
        place[group[i]] = static_cast<int>(i);
      }
    } else if (word == "round") {
      std::size_t op = 0;
      int group = 0, distance = 0;
      std::uint64_t bytes = 0;
      file >> op >> group >> distance >> bytes;
      out.spaces.back().ops[op].rounds[group].emplace_back(distance, bytes);
    } else if (word == "idle") {
      std::size_t op = 0;
      int rank = 0;
      file >> op >> rank;
      out.spaces.back().ops[op].idle[rank] = true;
    }
  }
  return out;
}

void sleep(double seconds) {
  if (seconds > 0) s4u::this_actor::sleep_for(seconds);
}

// An event that happens once. Who waits for it goes on `wakes` seconds after it.
class Flag {
 public:
  void set() { there_->release(); }
  void wait(double wakes) {
    const bool late = there_->would_block();
    there_->acquire();
    there_->release();
    if (late) sleep(wakes);
  }

 private:
  s4u::SemaphorePtr there_ = s4u::Semaphore::create(0);
};
using FlagPtr = std::shared_ptr<Flag>;

// A queue with an actor that executes it; an empty function ends it.
class Stream {
 public:
  Stream(s4u::Host* host, const std::string& name, double wakes) {
    actor_ = s4u::Actor::create(name, host, [this, wakes] {
      while (true) {
        const bool idle = ready_->would_block();
        ready_->acquire();
        const auto next = queue_.front();
        queue_.pop_front();
        if (!next) return;
        if (idle) sleep(wakes);
        next();
      }
    });
  }
  void push(std::function<void()> work) {
    queue_.push_back(std::move(work));
    ready_->release();
  }
  void join() {
    push({});
    actor_->join();
  }

 private:
  std::deque<std::function<void()>> queue_;
  s4u::SemaphorePtr ready_ = s4u::Semaphore::create(0);
  s4u::ActorPtr actor_;
};

class Rank;

// A message of which an end or both are posted: the network moves it, or the CPUs of two ranks of a host copy it, one into shared
// memory, the other out of it.
struct Transfer {
  Rank* sender = nullptr;
  Rank* receiver = nullptr;
  s4u::CommPtr sent, received;   // of the network, else:
  bool copied = false;
  double seconds = 0;            // of each of the two copies
  bool in = false, out = false;  // of shared memory

  bool matched() const { return sender != nullptr && receiver != nullptr; }
  bool done() const { return in && out; }
};
using TransferPtr = std::shared_ptr<Transfer>;

// A message that was posted; `peer` is its other end.
struct Posted {
  std::size_t number;
  int peer;
  TransferPtr message;
};

struct Ends {
  std::size_t exchange, number;
  int from, to;

  bool operator==(const Ends& o) const { return exchange == o.exchange && number == o.number && from == o.from && to == o.to; }
};
struct HashOfEnds {
  std::size_t operator()(const Ends& e) const {
    std::uint64_t mixed = 0;
    for (const std::uint64_t one : {std::uint64_t{e.exchange}, std::uint64_t{e.number}, static_cast<std::uint64_t>(e.from), static_cast<std::uint64_t>(e.to)})
      mixed = (mixed ^ one) * 0x9E3779B97F4A7C15u, mixed ^= mixed >> 29;
    return mixed;
  }
};
struct Channel {
  s4u::Mailbox* box = nullptr;
  std::deque<TransferPtr> unmatched;
};
std::unordered_map<Ends, Channel, HashOfEnds> channels;
std::vector<s4u::ActorPtr> actors;  // of the CPU of each rank

class Rank {
 public:
  Rank(int number, const Problem& problem, const std::vector<s4u::Host*>& hosts, const std::vector<Op>& ops, const std::vector<Row>& rows)
      : number_(number), problem_(problem), hosts_(hosts), ops_(ops), rows_(rows) {}

  void run() {
    for (int round = 0; round < problem_.rounds; ++round)
      for (const Row& row : rows_) execute(row);
    for (auto& [key, stream] : streams_) stream->join();
    for (auto& [key, mover] : movers_) mover->join();
  }

  struct Wait {
    const Op* op;
    std::size_t number;
    int peer;
  };
  // What its actors wait for.
  const std::list<Wait>& waits() const { return waits_; }

 private:
  Stream& stream(int key) {
    auto& found = streams_[key];
    if (!found) found = std::make_unique<Stream>(s4u::this_actor::get_host(), "stream-" + std::to_string(number_) + "-" + std::to_string(key), problem_.stream_wakes);
    return *found;
  }

  void execute(const Row& row) {
    if (row.kind == issue) return execute(ops_[static_cast<std::size_t>(row.a)], row.b);
    if (row.kind == record) {
      sleep(problem_.record);
      const FlagPtr flag = events_[row.a] = std::make_shared<Flag>();
      stream(row.b).push([flag] { flag->set(); });
    } else if (row.kind == wait_in_stream) {
      sleep(problem_.wait);
      stream(row.b).push([flag = events_.at(row.a), wakes = problem_.stream_wakes] { flag->wait(wakes); });
    } else if (row.kind == wait_of_cpu) {
      events_.at(row.a)->wait(problem_.cpu_wakes);
      sleep(problem_.sync);
    }
  }

  void execute(const Op& op, int on) {
    if (op.kind == "received") wait_received(op);
    if (op.kind == "sent") {
      for (const Posted& sent : sends_[op.key]) finish(op, sent);
      sends_[op.key].clear();
    }
    if (op.kind == "end")
      if (const auto begun = collectives_.find(op.key); begun != collectives_.end()) begun->second->wait(0);
    sleep(op.call);
    if (op.kind == "begin") {
      if (idle(op)) return;
      const FlagPtr done = collectives_[op.key] = std::make_shared<Flag>();
      auto& mover = movers_[op.key];
      if (!mover) mover = std::make_unique<Stream>(s4u::this_actor::get_host(), "collective-" + std::to_string(number_), 0);
      mover->push([this, &op, done] {
        exchange(op);
        done->set();
      });
    } else if (op.kind == "send") {
      leave(op);
      for (const Message& m : messages(op))
        if (m.to >= 0 && m.bytes > kEager) sends_[op.key].push_back(post(op, m, m.to, true));
    } else if (op.kind == "receive") {
      for (const Message& m : messages(op))
        if (m.from >= 0) receives_[op.key][{m.number, m.from}] = post(op, m, m.from, false);
    } else if (on >= 0) {
      on_stream(op, on);
    } else if (!idle(op)) {
      sleep(op.work);
    }
  }

  void on_stream(const Op& op, int on) {
    stream(on).push([this, &op] {
      if (op.kind == "exchange") exchange(op);
      if (!idle(op)) work(op);
    });
    if (op.kind != "blocking") return;
    const FlagPtr done = std::make_shared<Flag>();
    stream(on).push([done] { done->set(); });
    done->wait(problem_.cpu_wakes);
  }

  // What is ready later begins after work that fills the GPU.
  void work(const Op& op) const {
    const bool shares = op.kind == "shares", fills = op.kind == "fills";
    if (shares || fills) gpu_->lock();
    if (shares) gpu_->unlock();
    sleep(op.work);
    if (fills) gpu_->unlock();
  }

  // The messages that leave as they are posted, by an actor of their own: SimGrid searches all that an actor has sent whenever one comes
  // to it, and cancels what is under way when it ends.
  void leave(const Op& op) {
    const auto leaves = [](const Message& m) { return m.to >= 0 && m.bytes <= kEager; };
    if (std::none_of(messages(op).begin(), messages(op).end(), leaves)) return;
    s4u::Actor::create("messages", s4u::this_actor::get_host(), [this, &op, leaves] {
      std::vector<s4u::CommPtr> sent;
      for (const Message& m : messages(op))
        if (leaves(m)) sent.push_back(post(op, m, m.to, true).message->sent);
      for (const s4u::CommPtr& one : sent) one->wait();
    });
  }

  // MPI moves a collective beside the CPU, and the stream one that it executes.
  void exchange(const Op& op) {
    leave(op);
    std::vector<Posted> all;
    for (const Message& m : messages(op)) {
      if (m.to >= 0 && m.bytes > kEager) all.push_back(post(op, m, m.to, true));
      if (m.from >= 0) all.push_back(post(op, m, m.from, false));
    }
    for (const Posted& one : all) await(op, one);
    if (idle(op)) return;
    for (const auto& [group, steps] : op.rounds) {
      if (group < 0) {
        rounds(op, steps, problem_.ranks, number_, [](int place) { return place; });
        continue;
      }
      const auto& place = problem_.place[static_cast<std::size_t>(group)];
      const auto& ranks = problem_.groups[static_cast<std::size_t>(group)];
      const auto mine = place.find(number_);
      if (mine != place.end()) rounds(op, steps, static_cast<int>(ranks.size()), mine->second, [&](int at) { return ranks[static_cast<std::size_t>(at)]; });
    }
  }

  // Of `n` ranks, of which this is number `me`.
  template <class RankAt>
  void rounds(const Op& op, const std::vector<std::pair<int, std::uint64_t>>& steps, int n, int me, RankAt rank_at) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto [distance, bytes] = steps[i];
      const int to = rank_at((me + distance) % n), from = rank_at((me + n - distance % n) % n);
      const Posted sent{i, to, send({op.key, i, number_, to}, bytes, false)};
      const Posted received{i, from, receive({op.key, i, from, number_}, false)};
      await(op, received);
      await(op, sent);
    }
  }

  void await(const Op& op, const Posted& one) {
    const auto here = waits_.insert(waits_.end(), {&op, one.number, one.peer});
    comm(*one.message)->wait();
    waits_.erase(here);
  }

  const s4u::CommPtr& comm(const Transfer& message) const { return message.sender == this && message.sent ? message.sent : message.received; }

  // As await, of the CPU, which does its halves of copies while it is in MPI.
  void finish(const Op& op, const Posted& one) {
    if (!one.message->copied && copies_.empty()) return await(op, one);
    const auto here = waits_.insert(waits_.end(), {&op, one.number, one.peer});
    const auto came = std::make_shared<bool>(false);
    if (!one.message->copied)
      s4u::Actor::create("message-" + std::to_string(number_), s4u::this_actor::get_host(), [this, message = one.message, came, bell = bell_] {
        comm(*message)->wait();
        *came = true;
        bell->release();
      });
    while (one.message->copied ? !one.message->done() : !*came) copy_or_wait();
    waits_.erase(here);
  }

  void copy_or_wait() {
    const auto found = std::find_if(copies_.begin(), copies_.end(), [](const TransferPtr& copy) { return copy->matched(); });
    if (found == copies_.end()) {
      bell_->acquire();
      return;
    }
    const TransferPtr copy = *found;
    copies_.erase(found);
    sleep(copy->seconds);
    (copy->sender == this ? copy->in : copy->out) = true;
    (copy->sender == this ? copy->receiver : copy->sender)->bell_->release();
  }

  bool copied(const Op& op, int peer, std::uint64_t bytes) const {
    return op.mover == "cpu" && bytes > kEager && host(peer) == host(number_);
  }

  Posted post(const Op& op, const Message& m, int peer, bool sends) {
    const bool copies = (op.kind == "send" || op.kind == "receive") && copied(op, peer, m.bytes);
    const Ends ends = sends ? Ends{op.key, m.number, number_, peer} : Ends{op.key, m.number, peer, number_};
    if (copies) return {m.number, peer, copy_later(ends, m.bytes, peer, sends)};
    const bool eager = m.bytes <= kEager;
    return {m.number, peer, sends ? send(ends, m.bytes, eager) : receive(ends, eager)};
  }

  TransferPtr send(const Ends& ends, std::uint64_t bytes, bool eager) {
    static int token = 0;
    Channel& channel = channels[ends];
    const TransferPtr out = matched(channel.unmatched, true);
    out->sent = box(channel, ends, eager)->put_async(&token, problem_.sent(bytes));
    return out;
  }

  TransferPtr receive(const Ends& ends, bool eager) {
    static int* sink = nullptr;
    Channel& channel = channels[ends];
    const TransferPtr out = matched(channel.unmatched, false);
    out->received = box(channel, ends, eager)->get_async<int>(&sink);
    return out;
  }

  // The other end is there, or comes later.
  TransferPtr matched(std::deque<TransferPtr>& queue, bool sends) {
    TransferPtr out;
    if (queue.empty() || (sends ? queue.front()->sender : queue.front()->receiver) != nullptr) {
      out = queue.emplace_back(std::make_shared<Transfer>());
    } else {
      out = queue.front();
      queue.pop_front();
    }
    (sends ? out->sender : out->receiver) = this;
    return out;
  }

  // That of messages that leave as they are posted has a receiver.
  static s4u::Mailbox* box(Channel& channel, const Ends& ends, bool eager) {
    if (channel.box == nullptr) {
      std::string name;
      for (const std::size_t one : {ends.exchange, ends.number, static_cast<std::size_t>(ends.from), static_cast<std::size_t>(ends.to)}) name += std::to_string(one) + ":";
      s4u::Mailbox* const found = s4u::Mailbox::by_name(name);
      if (channel.box = found; eager) found->set_receiver(actors[static_cast<std::size_t>(ends.to)]);
    }
    return channel.box;
  }

  // A message to itself is copied by the call that finds the other end.
  TransferPtr copy_later(const Ends& ends, std::uint64_t bytes, int peer, bool sends) {
    const TransferPtr copy = matched(channels[ends].unmatched, sends);
    copy->copied = true;
    copy->seconds = seconds_to(peer, bytes);
    if (peer != number_) {
      copies_.push_back(copy);
      if (copy->matched()) (sends ? copy->receiver : copy->sender)->bell_->release();
    } else if (copy->matched()) {
      sleep(copy->seconds);
      copy->in = copy->out = true;
    }
    return copy;
  }

  double seconds_to(int peer, std::uint64_t bytes) const {
    std::vector<s4u::Link*> links;
    double latency = 0, each = 0;
    host(number_)->route_to(host(peer), links, &latency);
    for (const s4u::Link* link : links) each = std::max(each, 1 / link->get_bandwidth());
    return latency + each * static_cast<double>(problem_.sent(bytes));
  }

  s4u::Host* host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  bool idle(const Op& op) const { return op.idle.count(number_) != 0; }

  const std::vector<Message>& messages(const Op& op) const {
    static const std::vector<Message> none;
    const auto found = op.messages.find(number_);
    return found == op.messages.end() ? none : found->second;
  }

  using Source = std::pair<std::size_t, int>;  // number of the message, and its sender

  void wait_received(const Op& op) {
    for (const Message& m : messages(op))
      if (m.from >= 0) finish(op, receives_[op.key].at({m.number, m.from}));
  }

  int number_;
  const Problem& problem_;
  const std::vector<s4u::Host*>& hosts_;
  std::list<TransferPtr> copies_;  // those of which this rank has a half to do
  s4u::SemaphorePtr bell_ = s4u::Semaphore::create(0);
  const std::vector<Op>& ops_;
  const std::vector<Row>& rows_;
  std::map<int, std::unique_ptr<Stream>> streams_;
  std::map<std::size_t, std::unique_ptr<Stream>> movers_;  // of collectives of the CPU
  std::map<int, FlagPtr> events_;
  std::map<std::size_t, FlagPtr> collectives_;  // begun
  std::map<std::size_t, std::vector<Posted>> sends_;
  std::map<std::size_t, std::map<Source, Posted>> receives_;
  std::list<Wait> waits_;
  s4u::MutexPtr gpu_ = s4u::Mutex::create();
};

// Names in order, numbers in them by their value: node-2 before node-10.
bool before(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      std::size_t m = 0, n = 0;
      const unsigned long x = std::stoul(a.substr(i), &m), y = std::stoul(b.substr(j), &n);
      if (x != y) return x < y;
      i += m, j += n;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

std::vector<s4u::Host*> places(const s4u::Engine& engine, int ranks) {
  std::vector<s4u::Host*> hosts = engine.get_all_hosts(), out;
  std::sort(hosts.begin(), hosts.end(), [](const s4u::Host* a, const s4u::Host* b) { return before(a->get_name(), b->get_name()); });
  for (s4u::Host* host : hosts) out.insert(out.end(), static_cast<std::size_t>(host->get_core_count()), host);
  if (static_cast<std::size_t>(ranks) > out.size()) {
    std::cerr << "the platform has " << out.size() << " cores, and there are " << ranks << " ranks\n";
    std::exit(2);
  }
  return out;
}

// The host of each rank, from those of processes.
std::vector<s4u::Host*> by_rank(const Simulated& space, const std::vector<s4u::Host*>& hosts) {
  std::vector<s4u::Host*> out = hosts;
  for (std::size_t p = 0; p < space.order.size(); ++p) out[static_cast<std::size_t>(space.order[p])] = hosts[p];
  return out;
}

// Of each process, the first one on its host.
std::vector<int> first_of(const std::vector<s4u::Host*>& hosts, int ranks) {
  std::map<const s4u::Host*, int> first;
  std::vector<int> out;
  for (int p = 0; p < ranks; ++p) out.push_back(first.emplace(hosts[static_cast<std::size_t>(p)], p).first->second);
  return out;
}

std::vector<int> near(const Problem& problem, const Simulated& space, const std::vector<s4u::Host*>& hosts) {
  dagc::Bonds bonds(static_cast<std::size_t>(problem.ranks));
  for (const auto& [rank, sent] : space.sends)
    for (const auto& [to, bytes] : dagc::heaviest(sent)) bonds.add(rank, to, bytes);
  return dagc::near_order(bonds, first_of(hosts, problem.ranks)).rank;
}

// Leaves the messages of each op that its pairs have.
void choose_pairs(Problem& problem, const std::vector<s4u::Host*>& processes) {
  for (Simulated& space : problem.spaces) {
    const std::vector<s4u::Host*> hosts = by_rank(space, processes);
    const auto host = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
    for (Op& op : space.ops) {
      if (op.pairs == "all") continue;
      for (auto& [rank, messages] : op.messages)
        for (Message& m : messages)
          for (int* const peer : {&m.to, &m.from})
            if (*peer >= 0 && (host(*peer) == host(rank)) != (op.pairs == "within")) *peer = -1;
    }
  }
}

const std::vector<Rank>* simulated = nullptr;

// Follows what ranks wait for until one is met again, or has ended, and prints the cycle or the way to the end.
void print_deadlock(const std::vector<Rank>& ranks) {
  const auto stuck = [&](int rank) { return !ranks[static_cast<std::size_t>(rank)].waits().empty(); };
  int at = 0;
  while (static_cast<std::size_t>(at) + 1 < ranks.size() && !stuck(at)) ++at;
  std::vector<std::pair<int, Rank::Wait>> path;
  std::map<int, std::size_t> met;
  while (stuck(at) && met.emplace(at, path.size()).second) {
    const auto& waits = ranks[static_cast<std::size_t>(at)].waits();
    const auto found = std::find_if(waits.begin(), waits.end(), [&](const Rank::Wait& wait) { return stuck(wait.peer); });
    path.emplace_back(at, found == waits.end() ? waits.front() : *found);
    at = path.back().second.peer;
  }
  std::cout << "deadlock";
  for (std::size_t i = met.count(at) != 0 ? met[at] : 0; i < path.size(); ++i)
    std::cout << " " << path[i].first << " " << path[i].second.peer << " " << path[i].second.number << " " << path[i].second.op->exchange << ";";
  std::cout << std::endl;
  std::_Exit(1);
}

void simulate(const Problem& problem, const std::vector<s4u::Host*>& hosts, const std::vector<Op>& ops, const std::vector<Row>& rows) {
  std::vector<Rank> ranks;
  channels.clear();
  actors.clear();
  std::vector<double> ended(hosts.size());
  const double begin = s4u::Engine::get_clock();
  for (int r = 0; r < problem.ranks; ++r) ranks.emplace_back(r, problem, hosts, ops, rows);
  simulated = &ranks;
  for (int r = 0; r < problem.ranks; ++r)
    actors.push_back(s4u::Actor::create("rank-" + std::to_string(r), hosts[static_cast<std::size_t>(r)], [&ranks, &ended, r] {
      ranks[static_cast<std::size_t>(r)].run();
      ended[static_cast<std::size_t>(r)] = s4u::Engine::get_clock();
    }));
  for (const s4u::ActorPtr& actor : actors) actor->join();
  simulated = nullptr;
  const auto last = std::max_element(ended.begin(), ended.begin() + problem.ranks);
  std::cout << (*last - begin) / problem.rounds << " " << last - ended.begin() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);
  s4u::Engine::set_config("network/model:CM02");
  s4u::Engine::set_config("network/crosstraffic:0");
  s4u::Engine::set_config("surf/precision:1e-9");
  s4u::Engine::set_config("contexts/stack-size:128");  // KiB
  s4u::Engine::set_config("contexts/guard-size:0");    // pages; each would be a mapping, of which Linux allows 65 530
  if (argc != 3) {
    std::cerr << "usage: simulate PLATFORM PROBLEM < TRAVERSALS\n";
    return 2;
  }
  engine.load_platform(argv[1]);
  Problem problem = read(argv[2]);
  const std::vector<s4u::Host*> hosts = places(engine, problem.ranks);
  choose_pairs(problem, hosts);
  std::cout.precision(12);
  s4u::Engine::on_deadlock_cb([] {
    if (simulated != nullptr) print_deadlock(*simulated);
  });
  s4u::Actor::create("traversals", hosts[0], [&] {
    for (std::string line; std::getline(std::cin, line);) {
      const bool nears = line.rfind("near ", 0) == 0;
      if (line == "hosts" || nears) {
        for (const int one : nears ? near(problem, problem.spaces.at(std::stoul(line.substr(5))), hosts) : first_of(hosts, problem.ranks))
          std::cout << one << " ";
        std::cout << std::endl;
        continue;
      }
      std::istringstream text(line);
      if (line.rfind("factors ", 0) == 0) {
        std::string word;
        double calls = 1, work = 1, messages = 1;
        text >> word >> calls >> work >> messages;
        problem.scale(calls, work, messages);
        continue;
      }
      std::size_t space = 0;
      std::vector<Row> rows;
      text >> space;
      for (Row row{}; text >> row.kind >> row.a >> row.b;) {
        rows.push_back(row);
        text.ignore(1);
      }
      const Simulated& chosen = problem.spaces.at(space);
      simulate(problem, by_rank(chosen, hosts), chosen.ops, rows);
    }
  });
  engine.run();
  return 0;
}
