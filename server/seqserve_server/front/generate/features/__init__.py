"""What a request may ask for beside a translation, each with its reading and its writing half."""
