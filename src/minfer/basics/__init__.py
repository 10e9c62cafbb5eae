"""What everything else stands on: errors, checks of arguments, words, limits, pools."""
