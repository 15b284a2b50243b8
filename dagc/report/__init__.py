"""Tables, pictures, the HTML page, the progress display."""
