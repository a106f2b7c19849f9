package config

import (
	"errors"
	"io"
	"maps"
	"net"
	"slices"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/strictyaml"
)

// Config holds the settings of a server, each in the field of its name. Its help describes it. A
// Config returned by Parse is complete and valid.
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
	ownValues       map[string]map[string]value // of namespaces: the part in the file
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
			set: setParsed(&c.PrintConfig, parseBool)},
	}
}

// AllHosts returns the names that clients may use for this server: Hosts, and the host of
// Advertise, which other nodes pass on to clients. If Hosts is empty and Listen is not on loopback,
// names are not checked, and the result is empty.
func (c *Config) AllHosts() []string {
	host, _, err := net.SplitHostPort(c.Advertise)
	if err != nil || host == "" || len(c.Hosts) == 0 && !hostname.IsLoopback(c.Listen) {
		return c.Hosts
	}
	return append(slices.Clone(c.Hosts), host)
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

// FindLogFormat returns the log format that args, environ or the file they name set, whatever else
// is wrong with them, so that even the error about them can be logged in it. It is empty if none of
// them sets it.
func FindLogFormat(args, environ []string) string {
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

// Bind adds a flag for each setting to fs. Once fs has been parsed, load combines the flags,
// environ and the file that they name into settings. It ignores variables that are empty or not a
// setting, because orchestrators add TWOTIER_* variables; package lint warns about unknown ones.
// Its error names every bad setting and contains no password.
func Bind(fs *pflag.FlagSet) (load func(environ []string) (Config, error)) {
	flags := bindFlags(fs)
	return func(environ []string) (Config, error) {
		values := fromEnviron(environ)
		maps.Copy(values, flags)
		c := Config{values: values, File: values["config"].text, Variables: ownVariables(environ)}
		ignored := addCollector(values, parseEnviron(environ))
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
		if err := s.parse(v); err != nil {
			errs = append(errs, v.wrapError(s.name, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.check())
	}
	return errors.Join(append(errs, c.fillNamespaces(file.namespaces))...)
}

// ReadNamespaces returns the settings of the namespaces in a configuration file, and no others: the
// other settings may depend on flags and variables of the server. An empty path stands for a file
// without settings.
func ReadNamespaces(path string) (Config, error) {
	file, c := fileValues{settings: map[string]value{}}, Config{File: path}
	if path != "" {
		var err error
		if file, err = readFile(path); err != nil {
			return Config{}, err
		}
	}
	c.values = file.settings
	return c, c.fillNamespaces(file.namespaces)
}

// fillNamespaces sets c.Namespaces from the values in the file. It begins with the default
// namespace, because the others inherit its options.
func (c *Config) fillNamespaces(file map[string]map[string]value) error {
	c.Namespaces, c.namespaceValues = map[string]Namespace{}, map[string]map[string]value{}
	c.ownValues = file
	base := map[string]value{}
	for _, o := range namespaceSettings(new(Namespace)) {
		base[o.name] = value{text: o.def, origin: FromDefault}
	}
	base[onColdOption] = c.values[onColdOption]
	errs := []error{c.fillNamespace(DefaultNamespace, file[DefaultNamespace], base)}
	base = c.namespaceValues[DefaultNamespace]
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if name != DefaultNamespace {
			errs = append(errs, c.fillNamespace(name, file[name], base))
		}
	}
	return errors.Join(errs...)
}

// fillNamespace sets one namespace from its own values, and from base where it has none.
func (c *Config) fillNamespace(name string, own, base map[string]value) error {
	var ns Namespace
	var errs []error
	all := maps.Clone(base)
	maps.Copy(all, own)
	for _, o := range namespaceSettings(&ns) {
		// A bad inherited value is reported only where it was set.
		err := o.parse(all[o.name])
		if v, set := own[o.name]; err != nil && set {
			errs = append(errs, v.wrapError(namespacesKey+"."+name+"."+o.name, err))
		}
	}
	c.Namespaces[name], c.namespaceValues[name] = ns, all
	return errors.Join(errs...)
}
