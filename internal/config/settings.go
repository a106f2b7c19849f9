package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// setting is the name of a setting, its description in the help, and the function that parses it
// into a field.
type setting struct {
	name, def, arg, help string
	choices              []string // the allowed texts; if empty, anything that set accepts
	// notInFile marks settings that make no sense in a file, advanced those that few servers need.
	notInFile, advanced bool
	set                 func(text string) error
}

// settings lists all settings in printing order. They are parsed into c.
func settings(c *Config) []setting {
	return slices.Concat(serverSettings(&c.Server), logSettings(&c.Output),
		accessSettings(&c.Access), clusterSettings(&c.Cluster), storeSettings(&c.Store),
		countingSettings(&c.Store), outputSettings(&c.Output), outsideSettings(c))
}

func outsideSettings(c *Config) []setting {
	return []setting{
		{name: "config", arg: "FILE",
			help: "read settings from a YAML file of lines \"name: value\"", notInFile: true,
			set: func(string) error { return nil }},
		{name: "print-config", def: "false",
			help: "print all settings and where each one was set, then exit", notInFile: true,
			set: into(&c.PrintConfig, parseBool)},
	}
}

// anyText returns a setter that accepts any text.
func anyText(to *string) func(string) error {
	return func(text string) error { *to = text; return nil }
}

// checked returns a setter that accepts the texts that check does.
func checked(to *string, check func(string) error) func(string) error {
	return func(text string) error { *to = text; return check(text) }
}

// into returns a setter that parses a text.
func into[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) { *to, err = parse(text); return err }
}

// check checks that the values are consistent, once each value is valid by itself.
func (c *Config) check() error {
	return cmp.Or(c.checkListeners(), c.checkCluster(), c.checkAccess(), c.checkLag(),
		c.checkConnections(), c.checkStore())
}

// checkChoice refuses a text that is not one of the choices. Without choices it accepts any text.
func checkChoice(text string, choices []string) error {
	if len(choices) == 0 || slices.Contains(choices, text) {
		return nil
	}
	last := len(choices) - 1
	return fmt.Errorf("%q is not one of %s or %s", text, strings.Join(choices[:last], ", "),
		choices[last])
}
