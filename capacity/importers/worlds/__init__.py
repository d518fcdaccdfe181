"""Configuration files of world models and robot policies as world model specs."""
