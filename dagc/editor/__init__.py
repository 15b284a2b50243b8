"""Services for editors while a text is written: diagnostics, hover, definitions, names. `server` implements the
protocol."""
