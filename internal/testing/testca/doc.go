// Package testca makes certificates for tests: authorities, and certificates that they sign for
// servers and clients on loopback. Everything is PEM in memory. A certificate is valid from an hour
// before its creation; an authority until a day after, and other certificates until the time that
// the caller gives. A [CA] is safe for concurrent use.
package testca
