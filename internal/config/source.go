package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// envPrefix starts the name of every variable that is a setting.
const envPrefix = "TWOTIER_"

// fromArgs returns what the command line sets.
func fromArgs(args []string) (map[string]value, error) {
	values := map[string]value{}
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, s := range settings() {
		set := func(text string) error {
			values[s.name] = value{text: text, origin: FromFlag}
			return nil
		}
		if s.arg == "" {
			fs.BoolFunc(s.name, s.help, set)
		} else {
			fs.Func(s.name, s.help, set)
		}
	}
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		// Package flag has one dash where everything else here has two.
		text := strings.Replace(err.Error(), "flag provided but not defined: -", "unknown flag --", 1)
		return nil, errors.New(strings.Replace(text, "flag needs an argument: -", "no value for --", 1))
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; settings are flags, such as --listen 127.0.0.1:8080", fs.Arg(0))
	}
	return values, nil
}

// fromEnviron returns what the environment sets.
func fromEnviron(environ []string) map[string]value {
	vars := map[string]string{}
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		vars[name] = text
	}
	values := map[string]value{}
	for _, s := range settings() {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
		if vars[name] != "" {
			values[s.name] = value{text: vars[name], origin: FromEnvironment, where: name}
		}
	}
	return values
}
