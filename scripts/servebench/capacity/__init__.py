"""Find how many users a setting serves: which number to measure next, and what the measurements say. Pure."""
