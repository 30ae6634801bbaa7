"""What a text looks like: tf-idf rows."""
