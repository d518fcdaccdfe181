"""What a case asks for: modules, placement, operators, passes, phases, collectives."""
