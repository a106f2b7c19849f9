package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
)

// The exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
)

// errNoCommand is the error of an empty command line. The help has already been printed.
var errNoCommand = errors.New("no command")

// run executes one command line, without the program's name, and returns its exit status.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := newRoot(cli.IO{Environ: environ, Stdout: stdout, Stderr: stderr})
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	reportError(stderr, jsonErrorLog(args, environ, stderr), cmd, err)
	return statusOf(err)
}

// newRoot returns the command that holds all others. It does not use cobra's own version flag: that
// would link text/template, which makes the linker keep every exported method of the program, 16
// MB.
func newRoot(o cli.IO) *cobra.Command {
	root := &cobra.Command{
		Use: "twotier COMMAND [flags]", Short: "counts events in sliding windows",
		Long: rootText, Example: rootExamples,
	}
	asked := root.Flags().BoolP("version", "v", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asked {
			return printVersion(o)
		}
		cmd.SetOut(o.Stderr)
		return errors.Join(cmd.Help(), errNoCommand)
	}
	addGroup(root, "Run a server:", serveCommand(o), demoCommand(o), tokenCommand(o),
		doctorCommand(o), storedCommand(o))
	addGroup(root, "Ask a running server:", cli.Commands(o)...)
	root.AddCommand(versionCommand(o))
	cli.Prepare(root, o)
	return root
}

// addGroup adds commands that the help lists together under title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

func serveCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve [--redis URL] [--config FILE] [flags]", Short: "run a server",
		Long: serveText, Example: serveExamples,
	}
	load := config.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &cli.UsageError{Err: fmt.Errorf(
				"unexpected argument %q; settings are flags, such as "+
					"--listen 127.0.0.1:8080", args[0])}
		}
		cfg, err := load(o.Environ)
		switch {
		case err != nil:
			return &cli.UsageError{Err: err}
		case cfg.PrintConfig:
			return printConfig(&cfg, o.Stdout, o.Stderr)
		}
		return serve(cmd.Context(), cfg, o.Stdout, o.Stderr)
	}
	return cmd
}

func versionCommand(o cli.IO) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: cli.RefuseArgs,
		RunE: func(*cobra.Command, []string) error { return printVersion(o) },
	}
}

func printVersion(o cli.IO) error {
	_, err := fmt.Fprintln(o.Stdout, versionLine())
	return err
}
