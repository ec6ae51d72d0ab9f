"""What the forms of translation services share: fields of requests, pairs of languages, texts."""
