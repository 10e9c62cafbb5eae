"""Messages: odds of pairs, vectors, automata, lanes; and what is read off them."""
