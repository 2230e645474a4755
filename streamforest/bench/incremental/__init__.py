"""`bench incremental` and `bench hirf`: forests that take in new classes, by the papers' protocols."""
