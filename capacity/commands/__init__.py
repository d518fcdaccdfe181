"""One module for each command; `capacity.cli` imports a module when its command is used."""
