"""What the forms of translation services share: fields of requests, languages, texts."""
