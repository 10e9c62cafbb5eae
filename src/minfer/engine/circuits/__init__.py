"""From a conditioned model to a circuit: orders, bottom stage, search, layout."""
