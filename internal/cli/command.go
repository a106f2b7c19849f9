package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
