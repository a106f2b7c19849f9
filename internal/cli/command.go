package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/config"
)

// spec describes a command. bind defines its flags and returns the function that runs it.
type spec struct {
	name, args, summary, details, examples string
	timeout                                time.Duration // of one call; 0: defaultTimeout
	valid                                  []string      // the possible arguments, for completion
	alone                                  bool          // there are no arguments
	bind                                   func(fs *pflag.FlagSet) runner
}

// runner runs a command with its non-flag arguments.
type runner = func(ctx context.Context, s *session, args []string) error

func (s spec) command(o IO) *cobra.Command {
	var c connection
	args := strings.Replace(s.args, "[flags]", "[--server URL] [flags]", 1)
	cmd := &cobra.Command{
		Use: s.name + " " + args, Short: s.summary, Long: s.details, Example: s.examples,
		ValidArgsFunction: cobra.FixedCompletions(s.valid, cobra.ShellCompDirectiveNoFileComp),
	}
	if s.alone {
		cmd.Args = RefuseArgs
	}
	run := s.bind(cmd.Flags())
	c.addFlags(cmd.Flags(), s.timeout)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		session, err := c.newSession(o)
		if err != nil {
			return err
		}
		defer session.client.close()
		return run(cmd.Context(), session, args)
	}
	return cmd
}

// keyRunner returns a runner for commands whose only argument is a key.
func keyRunner(run func(ctx context.Context, s *session, key string) error) runner {
	return func(ctx context.Context, s *session, args []string) error {
		key, err := OneKey(args)
		if err != nil {
			return err
		}
		return run(ctx, s, key)
	}
}

// Commands returns the commands in the order in which the help lists them. [Prepare] sets up the
// root command that holds them.
func Commands(o IO) (commands []*cobra.Command) {
	for _, s := range []spec{
		addSpec(), countSpec(), acquireSpec(), distinctSpec(), seriesSpec(), topSpec(),
		holdsSpec(), settleSpec(), renewSpec(), clusterSpec(), modeSpec(), resetSpec(), rulesSpec(),
		bansSpec(), unbanSpec(), explainSpec(), mirrorSpec(), importSpec(),
	} {
		commands = append(commands, s.command(o))
	}
	return commands
}

// Prepare turns root, to which the caller has added its commands, into the command line of a
// program: it sets help that fits a terminal of 80 columns, adds the command help next to cobra's
// completion, completes the values of flags, and reports mistakes as a [UsageError]. It
// prints no errors; that is left to the caller that runs root.
func Prepare(root *cobra.Command, o IO) {
	root.SetOut(o.Stdout)
	root.SetErr(o.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	root.Args = unknownCommand
	root.SetHelpCommand(helpCommand(root))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd) })
	root.SetFlagErrorFunc(flagError)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
		cmd.Flags().SortFlags = false // the important ones first
		completeFlags(cmd)
		if cmd.Name() == "completion" {
			cmd.Short = "print a script for completion in a shell"
		}
	}
}

// completeFlags lets shells complete the values of flags with a fixed set of choices.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if choices := f.Annotations[config.ChoicesAnnotation]; choices != nil {
			// It fails only for flags that don't exist or are already registered.
			_ = cmd.RegisterFlagCompletionFunc(f.Name,
				cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// unknownCommand returns an error if there is an argument: root itself runs only if the argument
// names no command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		slices.Sort(near)
		return usagef("there is no command %q; did you mean %s?", args[0],
			strings.Join(near, " or "))
	}
	return usagef("there is no command %q", args[0])
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "print this, or more about a command",
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, _ []string, begin string) (
			names []string, _ cobra.ShellCompDirective,
		) {
			for _, c := range root.Commands() {
				if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), begin) {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, _, err := root.Find(args)
			if err != nil || cmd == root {
				if err := unknownCommand(root, args); err != nil {
					return err
				}
				cmd = root
			}
			return cmd.Help()
		},
	}
}

// flagError rewords an error of pflag in the style of the documentation.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, e)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef("no value for %s", dashedName(e.GetFlag()))
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		cause := e.Unwrap()
		if number, ok := errors.AsType[*strconv.NumError](cause); ok {
			cause = number.Err // without the name of the parsing function
		}
		return usagef("invalid value %q for %s: %w", e.GetValue(), dashedName(e.GetFlag()), cause)
	}
	return &UsageError{Err: err}
}

// unknownFlag returns the error for an unknown flag. It corrects a long flag typed with one dash,
// which pflag parses as one-letter flags.
func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name, typed := e.GetSpecifiedName(), "--"+e.GetSpecifiedName()
	if letters := e.GetSpecifiedShortnames(); letters != "" {
		name, _, _ = strings.Cut(letters, "=")
		typed = "-" + name
	}
	// Names that other programs use for the server.
	if slices.Contains([]string{"addr", "address", "endpoint", "host", "url"}, name) &&
		cmd.Flags().Lookup("server") != nil {
		return usagef("unknown flag %s; --server URL names the server", typed)
	}
	if cmd.Flags().Lookup(name) != nil {
		return usagef("unknown flag %s; did you mean --%s?", typed, name)
	}
	return usagef("unknown flag %s", typed)
}

const (
	helpWidth = 80
	// The columns in which the descriptions of commands and flags begin.
	commandIndent, flagIndent = 14, 26
)

func writeHelp(w io.Writer, cmd *cobra.Command) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s - %s\n\nusage: %s\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
	if cmd.Long != "" {
		out.WriteString("\n" + wrap(cmd.Long, helpWidth) + "\n")
	}
	for _, g := range cmd.Groups() {
		writeGroup(&out, cmd, g)
	}
	writeGroup(&out, cmd, &cobra.Group{Title: "More commands:"})
	if cmd.HasParent() {
		writeFlags(&out, "Flags", cmd.LocalFlags(), false)
		writeFlags(&out, "Advanced flags", cmd.LocalFlags(), true)
	}
	if cmd.Example != "" {
		out.WriteString("\nExamples:\n" + indent(cmd.Example) + "\n")
	}
	_, _ = io.WriteString(w, out.String()) // there is nowhere to report a failure
}

func writeGroup(out *strings.Builder, cmd *cobra.Command, g *cobra.Group) {
	title := "\n" + g.Title + "\n"
	for _, c := range cmd.Commands() {
		if c.GroupID == g.ID && (c.IsAvailableCommand() || c.Name() == "help") {
			out.WriteString(title)
			title = ""
			describe(out, c.Name(), c.Short, commandIndent)
		}
	}
}

// writeFlags describes the advanced flags of a command, or all others except --help.
func writeFlags(out *strings.Builder, title string, flags *pflag.FlagSet, advanced bool) {
	title = "\n" + title + ":\n"
	flags.VisitAll(func(f *pflag.Flag) {
		_, marked := f.Annotations[config.AdvancedAnnotation]
		if !f.Hidden && f.Name != "help" && marked == advanced {
			out.WriteString(title)
			title = ""
			describeFlag(out, f)
		}
	})
}

func describeFlag(out *strings.Builder, f *pflag.Flag) {
	arg, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "false", "0", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	describe(out, strings.TrimSpace(dashedName(f)+" "+arg), usage, flagIndent)
}

// describe writes a name and its description, which goes into a column that begins at indent.
func describe(out *strings.Builder, name, text string, indent int) {
	head := fmt.Sprintf("  %-*s", indent-2, name)
	if len(head) > indent || head[indent-1] != ' ' {
		head = "  " + name + "\n" + strings.Repeat(" ", indent)
	}
	text = wrap(strings.Join(strings.Fields(text), " "), helpWidth-indent)
	out.WriteString(head + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent)) + "\n")
}

// wrap breaks paragraphs, which empty lines separate, into lines of at most width characters.
// Paragraphs that begin with a space are kept unchanged.
func wrap(text string, width int) string {
	paragraphs := strings.Split(strings.TrimRight(text, "\n"), "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = wrapWords(strings.Fields(p), width)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// wrapWords joins words into lines of at most width characters.
func wrapWords(words []string, width int) string {
	var out strings.Builder
	length := 0
	for _, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case length == 0:
		case length+1+n > width:
			out.WriteByte('\n')
			length = 0
		default:
			out.WriteByte(' ')
			length++
		}
		out.WriteString(word)
		length += n
	}
	return out.String()
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

func dashedName(f *pflag.Flag) string {
	if len(f.Name) == 1 {
		return "-" + f.Name
	}
	return "--" + f.Name
}
