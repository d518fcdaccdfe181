"""How checkpoints are stored: tensor headers and quantisation configurations."""
