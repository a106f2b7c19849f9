package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/config"
)

// Commands returns the commands in the order in which the help lists them. [Prepare] sets up the
// root command that holds them.
func Commands(o IO) []*cobra.Command {
	specs := []spec{
		addSpec(), countSpec(), acquireSpec(), distinctSpec(), seriesSpec(), topSpec(),
		holdsSpec(), settleSpec(), renewSpec(), clusterSpec(), modeSpec(), resetSpec(), rulesSpec(),
		bansSpec(), unbanSpec(), explainSpec(), mirrorSpec(), importSpec(),
	}
	commands := make([]*cobra.Command, len(specs))
	for i, s := range specs {
		commands[i] = s.command(o)
	}
	return commands
}

// Prepare turns root, to which the caller has added its commands, into the command line of a
// program: it sets help that fits a terminal of 80 columns, adds the commands help and man next to
// cobra's completion, completes the values of flags, and reports mistakes as a [UsageError]. It
// prints no errors; that is left to the caller that runs root.
func Prepare(root *cobra.Command, o IO) {
	root.SetOut(o.Stdout)
	root.SetErr(o.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	root.Args = unknownCommand
	root.SetHelpCommand(helpCommand(root))
	root.AddCommand(manCommand(root))
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
