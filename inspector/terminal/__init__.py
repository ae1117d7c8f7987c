"""Results as text for the terminal. Pure functions: a result in, a string out."""
