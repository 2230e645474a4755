"""What all forests share: River's methods, the engine, tables of features and labels."""
