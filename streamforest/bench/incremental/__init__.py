"""`bench incremental` and `bench hirf`: forests that learn new classes, by the papers' protocols."""
