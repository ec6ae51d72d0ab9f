"""What a request may ask for beside a translation; the way of a request knows none of it."""
