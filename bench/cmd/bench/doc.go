// Command bench compares twotier and its parts with what one would use instead. Each of its
// commands answers one question, starts the servers that it needs, and writes its result as
// Markdown and JSON; all runs every one in order. README.md says what there is.
package main
