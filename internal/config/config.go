package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

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
	flags := bindFlags(fs)
	_ = fs.Parse(args) // the flags before a mistake count
	values := fromEnviron(environ)
	maps.Copy(values, flags)
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

// envPrefix starts the name of every variable that is a setting.
const envPrefix = "TWOTIER_"

// namespacesKey is the key of the namespaces, which only a file can set.
const namespacesKey = "namespaces"

// rulesKey is the key of the rules: a list of them, or the path of a file as in --rules.
const rulesKey = "rules"

// setting is the name of a setting, its description in the help, and the function that parses it
// into a field.
type setting struct {
	name, def, arg, help string
	choices              []string // the allowed texts; if empty, anything that set accepts
	// notInFile marks a setting that makes no sense in a file, advanced one that few servers need.
	notInFile, advanced bool
	set                 func(text string) error
}

func (s setting) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// isList reports whether the setting is a comma-separated list, which a file may write as a
// sequence.
func (s setting) isList() bool { return strings.HasSuffix(s.arg, ",...") }

// setText returns a setter that accepts any text.
func setText(to *string) func(string) error {
	return func(text string) error { *to = text; return nil }
}

// setChecked returns a setter that accepts the texts that check does.
func setChecked(to *string, check func(string) error) func(string) error {
	return func(text string) error { *to = text; return check(text) }
}

// setParsed returns a setter that parses a text.
func setParsed[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) { *to, err = parse(text); return err }
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

func (s setting) parse(v value) error {
	return cmp.Or(checkChoice(v.text, s.choices), s.set(v.text))
}

// wrapError adds to err the name of the setting and, unless it was a flag, where it was set.
func (v value) wrapError(name string, err error) error {
	switch v.origin {
	case FromFile:
		return fmt.Errorf("%s: %s: %w", v.where, name, err)
	case FromEnvironment:
		return fmt.Errorf("--%s: %w (from %s)", name, err, v.where)
	}
	return fmt.Errorf("--%s: %w", name, err)
}

// The keys of the annotations of flags: ChoicesAnnotation lists the allowed values, and
// AdvancedAnnotation marks a flag that few servers need.
const (
	ChoicesAnnotation  = "choices"
	AdvancedAnnotation = "advanced"
)

// bindFlags adds a flag for each setting to fs. It returns a map that will hold the flags that are
// set.
func bindFlags(fs *pflag.FlagSet) map[string]value {
	values := map[string]value{}
	for _, s := range settings(new(Config)) {
		f := fs.VarPF(&settingFlag{s, values}, s.name, "", s.help)
		if s.arg == "" {
			f.NoOptDefVal = "true"
		}
		f.Annotations = map[string][]string{}
		if len(s.choices) > 0 {
			f.Annotations[ChoicesAnnotation] = s.choices
		}
		if s.advanced {
			f.Annotations[AdvancedAnnotation] = nil
		}
	}
	return values
}

// settingFlag is a setting as a flag. It accepts any text: values are checked later, for all
// sources alike and for all settings at once.
type settingFlag struct {
	setting
	values map[string]value
}

// Set implements [pflag.Value].
func (f *settingFlag) Set(text string) error {
	f.values[f.name] = value{text: text, origin: FromFlag}
	return nil
}

// String implements [pflag.Value]. It returns the default.
func (f *settingFlag) String() string { return f.def }

// Type implements [pflag.Value]. It returns the name of the value in the help.
func (f *settingFlag) Type() string {
	if f.arg == "" {
		return "bool"
	}
	return f.arg
}

// fromEnviron returns the values that the environment sets.
func fromEnviron(environ []string) map[string]value {
	vars, values := parseEnviron(environ), map[string]value{}
	for _, s := range settings(new(Config)) {
		name := s.variable()
		if vars[name] != "" {
			values[s.name] = value{text: vars[name], origin: FromEnvironment, where: name}
		}
	}
	return values
}

// SettingVariables returns the names of the variables that are settings.
func SettingVariables() (names []string) {
	for _, s := range settings(new(Config)) {
		names = append(names, s.variable())
	}
	return names
}

// ownVariables returns the names of the variables that start with the prefix of settings, sorted.
func ownVariables(environ []string) (names []string) {
	for name := range parseEnviron(environ) {
		if strings.HasPrefix(name, envPrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// parseEnviron returns the variables in environ by name.
func parseEnviron(environ []string) map[string]string {
	vars := map[string]string{}
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		vars[name] = text
	}
	return vars
}
