"""Files of text in several formats: what of them is translated, and what stays as it is."""
