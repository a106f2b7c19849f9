// Command memory measures what a key costs: bytes in Redis, for twotier and for the limiters that live there, and bytes in
// twotier's own memory. It also fills a counter in this process with ten million keys and measures for how long garbage
// collection stops the program.
package main
