package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
)

// envPrefix starts the name of every variable that is a setting.
const envPrefix = "TWOTIER_"

// maxFile bounds the configuration file, so that a wrong path is an error rather than a machine out of memory.
const maxFile = 1 << 20

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

// line is one setting of a configuration file.
type line struct {
	name string
	value
}

// readFile returns the settings of a configuration file.
func readFile(path string) ([]line, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("--config: %s is longer than 1MiB", path)
	}
	return parseLines(path, text)
}

// parseLines returns the settings of the text of a configuration file in their order, or all of its errors.
func parseLines(path string, text []byte) ([]line, error) {
	var (
		lines []line
		errs  []error
	)
	seen := map[string]string{}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for i, raw := range strings.Split(string(text), "\n") {
		where := fmt.Sprintf("%s:%d", path, i+1)
		name, text, err := parseLine(raw)
		if err == nil && name == "" {
			continue
		}
		if err == nil && seen[name] != "" {
			err = fmt.Errorf("%s is set already in %s", name, seen[name])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			continue
		}
		seen[name] = where
		lines = append(lines, line{name, value{text, FromFile, where}})
	}
	return lines, errors.Join(errs...)
}

// parseLine takes "name = value" or "name value" apart; the name is empty if there is none.
func parseLine(raw string) (name, text string, err error) {
	raw = strings.TrimSpace(raw)
	if raw == "" || raw[0] == '#' {
		return "", "", nil
	}
	// The name ends at the first space or =, so that "redis redis://host?db=1" is not cut in its value.
	end := strings.IndexFunc(raw, func(r rune) bool { return r == '=' || unicode.IsSpace(r) })
	if end < 0 {
		end = len(raw)
	}
	name = raw[:end]
	rest := strings.TrimSpace(raw[end:])
	assigned := strings.HasPrefix(rest, "=")
	rest = strings.TrimSpace(strings.TrimPrefix(rest, "="))
	if err := checkLineName(name); err != nil {
		return "", "", err
	}
	if text, err = unquote(rest); err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	if text == "" && !assigned {
		return "", "", fmt.Errorf("%s has no value; write %s = VALUE", name, name)
	}
	return name, text, nil
}

// checkLineName refuses names that a file can't set.
func checkLineName(name string) error {
	if strings.HasPrefix(name, namespacePrefix) {
		_, _, err := splitNamespace(name)
		return err
	}
	for _, s := range settings() {
		switch {
		case s.name != name:
		case s.onlyOutside:
			return fmt.Errorf("%s belongs on the command line or in the environment, not in a file", name)
		default:
			return nil
		}
	}
	return fmt.Errorf("unknown setting %q; twotier help serve lists them", name)
}

// unquote returns the value at the start of text, without the comment behind it.
func unquote(text string) (string, error) {
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", errors.New("the quotes are not closed")
		}
		rest := strings.TrimSpace(text[len(quoted):])
		if rest != "" && rest[0] != '#' {
			return "", fmt.Errorf("unexpected %q behind the quotes", rest)
		}
		return strconv.Unquote(quoted)
	}
	if strings.HasPrefix(text, "#") {
		return "", nil
	}
	for i, r := range text {
		if r == '#' && (text[i-1] == ' ' || text[i-1] == '\t') {
			return strings.TrimSpace(text[:i]), nil
		}
	}
	return text, nil
}

// quote is the opposite of unquote: it adds quotes where text needs them.
func quote(text string) string {
	plain, err := unquote(text)
	if err != nil || plain != text || strings.TrimSpace(text) != text || strings.ContainsFunc(text, unicode.IsControl) {
		return strconv.Quote(text)
	}
	return text
}
