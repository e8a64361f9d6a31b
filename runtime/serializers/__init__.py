"""What goes in and out of the API, by what it is about."""
