"""What people see: tables for the terminal and plots; numbers come from results, units are put on here."""
