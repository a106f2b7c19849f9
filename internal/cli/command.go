package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrRefused is returned by an acquire that was answered and not allowed. The answer has been printed.
var ErrRefused = errors.New("refused")

// UsageError is a mistake on the command line.
type UsageError struct {
	// Synopsis is how the command is called.
	Synopsis string
	Err      error
}

// Error says what is wrong, not how to do it right.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// IO is what a command knows of its process.
type IO struct {
	// Environ is NAME=value as in [os.Environ]; TWOTIER_SERVER, TWOTIER_TOKEN and others, COLUMNS,
	// NO_COLOR and TERM are looked at.
	Environ        []string
	Stdout, Stderr io.Writer
}

// getenv returns the value of a variable, or "".
func (o IO) getenv(name string) (found string) {
	for _, entry := range o.Environ {
		if n, v, _ := strings.Cut(entry, "="); n == name {
			found = v
		}
	}
	return found
}

// colour says whether to colour the output: for a terminal, unless it or its user can't or won't have it.
func (o IO) colour() bool {
	f, ok := o.Stdout.(*os.File)
	if !ok || o.getenv("NO_COLOR") != "" || o.getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// columns is the width of the output.
func (o IO) columns() int {
	n, err := strconv.Atoi(o.getenv("COLUMNS"))
	if err != nil {
		return 80
	}
	return min(max(n, 40), 240)
}

// Command is one command of twotier.
type Command struct {
	// Name is its first argument, Synopsis how it is called, Summary what it does in half a line.
	Name, Synopsis, Summary string
	// Help writes its help text.
	Help func(w io.Writer) error
	// Run runs it with the arguments behind its name.
	Run func(ctx context.Context, o IO, args []string) error
}

// Commands returns the commands in the order of a help text.
func Commands() []Command {
	specs := []spec{addSpec(), countSpec(), acquireSpec(), seriesSpec(), topSpec(), clusterSpec(), modeSpec(), resetSpec(), benchSpec()}
	commands := make([]Command, len(specs))
	for i, s := range specs {
		commands[i] = Command{Name: s.name, Synopsis: "twotier " + s.name + " " + s.args, Summary: s.summary, Help: s.help, Run: s.run}
	}
	return commands
}

// spec describes a command. bind defines its flags, and returns what runs it with the arguments that are not flags.
type spec struct {
	name, args, summary, details, examples string
	timeout                                time.Duration // of one call, by default; 0: defaultTimeout
	bind                                   func(fs *flag.FlagSet) func(ctx context.Context, s *session, args []string) error
}

// session is one run of a command.
type session struct {
	IO
	client *client
	json   bool
}

func (s spec) run(ctx context.Context, o IO, args []string) error {
	err := s.try(ctx, o, args)
	if usage, ok := errors.AsType[*UsageError](err); ok {
		usage.Synopsis = "twotier " + s.name + " " + s.args
	}
	return err
}

func (s spec) try(ctx context.Context, o IO, args []string) error {
	var c connection
	fs := flag.NewFlagSet(s.name, flag.ContinueOnError)
	c.bind(fs, s.timeout)
	run := s.bind(fs)
	args, err := ParseFlags(fs, args)
	if err != nil {
		return err
	}
	session, err := c.open(o)
	if err != nil {
		return err
	}
	defer session.client.close()
	return run(ctx, session, args)
}

// ParseFlags parses flags wherever they stand among the arguments, and returns the others. All behind -- are others. An error is
// [flag.ErrHelp] or a [UsageError] in the words that flags are documented in.
func ParseFlags(fs *flag.FlagSet, args []string) (others []string, err error) {
	fs.SetOutput(io.Discard)
	for {
		if err := fs.Parse(args); err != nil {
			return nil, flagError(err)
		}
		rest := fs.Args()
		if len(rest) == 0 {
			return others, nil
		}
		if at := len(args) - len(rest); at > 0 && args[at-1] == "--" {
			return append(others, rest...), nil
		}
		others = append(others, rest[0])
		args = rest[1:]
	}
}

// flagError words an error of package flag the way the flags are documented, with two dashes.
func flagError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	text := strings.Replace(err.Error(), "flag provided but not defined: -", "unknown flag --", 1)
	text = strings.Replace(text, " for flag -", " for --", 1) // invalid value "x" for flag -n
	text = strings.Replace(text, "flag needs an argument: -", "no value for --", 1)
	return usagef("%s", text)
}

func usagef(format string, args ...any) error { return &UsageError{Err: fmt.Errorf(format, args...)} }

// oneKey returns the only argument.
func oneKey(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", usagef("the KEY is missing")
	case len(args) > 1:
		return "", usagef("one KEY is enough, and %q is one more (quote keys with spaces)", args[1])
	case args[0] == "":
		return "", usagef("the KEY is empty")
	}
	return args[0], nil
}

// noArgs refuses arguments that are not flags.
func noArgs(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// help writes the help text of the command.
func (s spec) help(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "twotier %s - %s\n\nusage: twotier %s %s\n\n%s\n\nFlags, before or behind other arguments:\n", s.name, s.summary, s.name, s.args, s.details)
	var c connection
	own, shared := flag.NewFlagSet(s.name, flag.ContinueOnError), flag.NewFlagSet(s.name, flag.ContinueOnError)
	s.bind(own)
	c.bind(shared, s.timeout)
	own.VisitAll(func(f *flag.Flag) { describe(&out, f) })
	shared.VisitAll(func(f *flag.Flag) { describe(&out, f) })
	fmt.Fprintf(&out, "\nExamples:\n%s\n", indent(s.examples))
	_, err := io.WriteString(w, out.String())
	return err
}

func describe(out *strings.Builder, f *flag.Flag) {
	arg, usage := flag.UnquoteUsage(f)
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
		usage += " (default " + f.DefValue + ")"
	}
	const indent = 24
	dashes := "--"
	if len(f.Name) == 1 {
		dashes = "-"
	}
	head := strings.TrimSpace(dashes + f.Name + " " + arg)
	if len(head) >= indent {
		head += "\n" + strings.Repeat(" ", indent+2)
	}
	fmt.Fprintf(out, "  %-*s%s\n", indent, head, usage)
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
