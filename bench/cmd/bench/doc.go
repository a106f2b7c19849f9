// Command bench compares twotier and its parts with alternatives. Each of its commands answers one
// question, starts the servers that it needs, and writes its result as Markdown and JSON. The
// command all runs every other one in order. README.md lists them.
package main
