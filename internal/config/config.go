package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/strictyaml"
	"twotier.dev/twotier/leaparray"
)

// DefaultNamespace is the namespace of requests without one.
const DefaultNamespace = "default"

// Config holds the settings of a server. A Config returned by Parse is complete and valid: a zero
// value stands for a default only in fields documented that way.
type Config struct {
	Server
	Cluster
	Store
	Access
	Output
	// RuleList is the list of rules in the configuration file, if it contains one. Then Rules is
	// empty.
	RuleList *strictyaml.Node
	// Variables are the names of all TWOTIER_* variables, whether they are settings or not.
	Variables []string
	// Namespaces holds at least the default namespace. Namespaces that are missing from it have the
	// settings of the default one.
	Namespaces map[string]Namespace
	// File is the path of the configuration file; empty if there was none.
	File string
	// PrintConfig asks to print the configuration instead of serving.
	PrintConfig bool

	values          map[string]value
	namespaceValues map[string]map[string]value
}

// Namespace holds the settings of one namespace.
type Namespace struct {
	// Levels lists the levels of buckets, finest first.
	Levels []Level
	// Exact is how many of the newest events of a key keep their millisecond; 0 turns that off.
	Exact int
	// OnCold is as in [Store].
	OnCold string
	// MaxKeys bounds the number of keys in memory; 0 means that only memory bounds it.
	MaxKeys int64
	// HashTags makes the part of a key in braces determine its partition.
	HashTags bool
}

// Ladder returns the ladder of the namespace's levels.
func (ns *Namespace) Ladder() (*leaparray.Ladder, error) {
	return leaparray.NewLadder(ns.Exact, ns.Levels...)
}

// Level is a number of buckets of one width.
type Level = leaparray.Level

// Origin is the place where a value was set.
type Origin string

// The origins of a value, the strongest first.
const (
	FromFlag        Origin = "flag"
	FromEnvironment Origin = "environment"
	FromFile        Origin = "file"
	FromDefault     Origin = "default"
)

// value is the text of a setting and where it was set: the name of the variable, or file, line and
// column.
type value struct {
	text   string
	origin Origin
	where  string
}

// Parse combines args (without the names of the program and the command), environ (NAME=value, as
// [os.Environ]) and the file that they name into settings.
func Parse(args, environ []string) (Config, error) {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	load := Bind(fs)
	if err := fs.Parse(args); err != nil {
		return Config{}, err
	}
	return load(environ)
}

// LogFormat returns the log format that args, environ and the file they name ask for, whatever else
// is wrong with them, so that even the error about them can be logged in it. It is empty if none of
// them sets it.
func LogFormat(args, environ []string) string {
	const name = "log-format"
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	values := bindFlags(fs)
	_ = fs.Parse(args) // the flags before a mistake count
	for key, v := range fromEnviron(environ) {
		if _, ok := values[key]; !ok {
			values[key] = v
		}
	}
	if v, ok := values[name]; ok || values["config"].text == "" {
		return v.text
	}
	file, _ := readFile(values["config"].text) // its readable part counts
	return file.settings[name].text
}

// Where returns where a setting was set: --NAME, a variable, or FILE:LINE:COLUMN. It is empty if
// the setting has its default.
func (c *Config) Where(name string) string {
	switch v := c.values[name]; v.origin {
	case FromFlag:
		return "--" + name
	case FromEnvironment, FromFile:
		return v.where
	}
	return ""
}

// Bind adds a flag for each setting to fs. Once fs has been parsed, load combines the flags,
// environ and the file that they name into settings. It ignores variables that are empty or not a
// setting, because orchestrators add TWOTIER_* variables; package lint warns about unknown ones.
// Its error names every bad setting and contains no password.
func Bind(fs *pflag.FlagSet) (load func(environ []string) (Config, error)) {
	flags := bindFlags(fs)
	return func(environ []string) (Config, error) {
		values := fromEnviron(environ)
		maps.Copy(values, flags)
		c := Config{values: values, File: values["config"].text, Variables: ours(environ)}
		ignored := addCollector(values, variables(environ))
		var file fileValues
		if c.File != "" {
			var err error
			if file, err = readFile(c.File); err != nil {
				return Config{}, err
			}
		}
		err := c.fill(file)
		if c.OTLPEndpoint == "" { // the file names none either
			c.OTLPIgnored = ignored
		}
		return c, err
	}
}

// fill sets the fields of c from c.values, from the file and from the defaults.
func (c *Config) fill(file fileValues) error {
	for name, v := range file.settings {
		if _, ok := c.values[name]; !ok {
			c.values[name] = v
		}
	}
	var errs []error
	if _, ok := c.values[rulesKey]; !ok {
		c.RuleList = file.rules
	}
	for _, s := range settings(c) {
		v, ok := c.values[s.name]
		if !ok {
			v = value{text: s.def, origin: FromDefault}
			c.values[s.name] = v
		}
		if err := cmp.Or(checkChoice(v.text, s.choices), s.set(v.text)); err != nil {
			errs = append(errs, v.wrap(s.name, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.check())
	}
	return errors.Join(append(errs, c.fillNamespaces(file.namespaces))...)
}

// wrap adds to err the name of the setting and, unless it was a flag, where it was set.
func (v value) wrap(name string, err error) error {
	switch v.origin {
	case FromFile:
		return fmt.Errorf("%s: %s: %w", v.where, name, err)
	case FromEnvironment:
		return fmt.Errorf("--%s: %w (from %s)", name, err, v.where)
	}
	return fmt.Errorf("--%s: %w", name, err)
}
