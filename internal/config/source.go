package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

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
