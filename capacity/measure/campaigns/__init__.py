"""Campaigns: which runs are made on a device and in which order, and the files that they leave."""
