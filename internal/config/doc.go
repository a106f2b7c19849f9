// Package config turns the command line, the environment and a file into the settings of one
// twotier server.
//
// Every setting has one name. --flush-interval on the command line, TWOTIER_FLUSH_INTERVAL in the
// environment and "flush-interval: 200ms" in the file are the same setting. The command line
// overrides the environment, and the environment overrides the file. Only the file can set
// namespaces:
//
//	redis: redis://127.0.0.1:6379
//	join: [10.0.0.1:7946, 10.0.0.2:7946]
//	namespaces:
//	  default: # other namespaces inherit unset options from here
//	    ladder: [100ms x 100, 1s x 100, 10s x 60, 1m x 150, 15m x 100]
//	  login:
//	    on-cold: deny
//	  sms:
//	    hash-tags: true
//
// The file is a single YAML document. Durations and sizes are written as in flags, whatever YAML
// would make of them; lists are sequences or comma-separated. Keys may have underscores in place of
// dashes, as in JSON. Errors have a line and column. They report the first syntax error, or else
// all unknown keys, or else all bad values.
//
// [Parse] reads only its arguments and the file they name, has no side effects, and is safe for
// concurrent use. It checks each value and the consistency of all of them. It does not check
// whether an address can be bound, or whether Redis answers.
package config
