// Package testca makes certificates for tests: authorities, and what they sign for servers and
// clients on loopback. Everything is PEM in memory and good for an hour before and a day after it
// was made, unless another end is asked for.
package testca
