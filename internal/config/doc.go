// Package config turns the command line, the environment and a file into the settings of one twotier server.
//
// Every setting has one name. --flush-interval on the command line, TWOTIER_FLUSH_INTERVAL in the environment and the line
// "flush-interval = 200ms" in the file are the same setting; the command line wins over the environment, and that over the
// file. Only namespaces are the file's alone:
//
//	# what a namespace doesn't set it takes from namespace.default
//	namespace.default.ladder = 1s x 60, 1m x 60, 15m x 96
//	namespace.login.on-cold  = deny
//
// A line is "name = value" or "name value". A comment starts with # at the start of a line or after a space. A value that
// needs such characters is written in double quotes, as in Go. Names that don't exist are refused with their line.
//
// [Parse] reads nothing but its arguments and the file that they name, changes nothing outside of its result, and may be
// called by any number of goroutines. It checks each value and how they fit together; whether an address can be bound or
// Redis answers is for those who use them.
package config
