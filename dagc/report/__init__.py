"""Tables, pictures, the page, the display of progress."""
