// Command http measures how close POST /v1/add comes to the least that an HTTP server can do: twotier and a server that
// does nothing but return the same bytes are processes of their own, asked in turn by the same generator, and what counts
// is the ratio within each pair of rounds. It also measures adds per second in quiet batches of 1,000.
package main
