package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

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

// variable returns the name of the setting's variable.
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

// parse parses the text of a value.
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
