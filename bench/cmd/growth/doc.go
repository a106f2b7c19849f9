// Command growth measures how costs grow: from ten thousand to ten million keys, from one rule to four, from one node to five.
package main
