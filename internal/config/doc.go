// Package config turns the command line, the environment and a file into the settings of one
// twotier server.
//
// Every setting has one name. --flush-interval on the command line, TWOTIER_FLUSH_INTERVAL in the
// environment and "flush-interval: 200ms" in the file are the same setting; the command line wins
// over the environment, and that over the file. Only namespaces are the file's alone:
//
//	redis: redis://127.0.0.1:6379
//	join: [10.0.0.1:7946, 10.0.0.2:7946]
//	namespaces:
//	  default: # what another namespace doesn't set it takes from here
//	    ladder: [1s x 60, 1m x 60, 15m x 96]
//	  login:
//	    on-cold: deny
//	  sms:
//	    hash-tags: true
//
// The file is YAML, of one document. Durations and sizes are written as in flags, whatever YAML
// makes of them, and lists as sequences or with commas. The dashes of a key may be underscores, as
// in JSON. What is wrong is refused with line and column: the first place where it is not YAML, or
// all keys that don't exist, with what was probably meant, or all values.
//
// [Parse] reads nothing but its arguments and the file that they name, changes nothing outside of
// its result, and may be called by any number of goroutines. It checks each value and how they fit
// together; whether an address can be bound or Redis answers is for those who use them.
package config
