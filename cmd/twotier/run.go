package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"twotier/internal/cli"
	"twotier/internal/config"
)

// The exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
)

// run executes one command line, without the program's name, and returns its exit status.
func run(ctx context.Context, args, environ []string, _ io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		_ = printHelp(stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	o := cli.IO{Environ: environ, Stdout: stdout, Stderr: stderr}
	c, err := find(name)
	if err == nil {
		if err = c.Run(ctx, o, args); errors.Is(err, flag.ErrHelp) {
			err = c.Help(stdout)
		}
		name = c.Name
	}
	return report(stderr, name, err)
}

// report prints what went wrong and returns the exit status that says so.
func report(stderr io.Writer, name string, err error) int {
	var usage *cli.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, cli.ErrRefused):
		return exitRefused
	case errors.As(err, &usage) && usage.Synopsis == "":
		fmt.Fprintf(stderr, "twotier: %v\nusage: twotier COMMAND [flags], twotier help lists the commands\n", err)
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "twotier %s: %v\nusage: %s\ntwotier help %s says more\n", name, err, usage.Synopsis, name)
		return exitUsage
	}
	fmt.Fprintf(stderr, "twotier %s: %v\n", name, err)
	return exitFailed
}

// commands returns all commands in the order of the help text.
func commands() []cli.Command {
	all := []cli.Command{{
		Name: "serve", Synopsis: serveSynopsis, Summary: "run a server", Help: serveHelp, Run: runServe,
	}, {
		Name: "demo", Synopsis: demoSynopsis, Summary: "three nodes and some traffic in one process, for a first look", Help: demoHelp, Run: runDemo,
	}}
	all = append(all, cli.Commands()...)
	return append(all, cli.Command{
		Name: "token", Synopsis: tokenSynopsis, Summary: "make a token, and its line for --tokens", Help: tokenHelp, Run: runToken,
	}, cli.Command{
		Name: "version", Synopsis: "twotier version", Summary: "print the version", Help: versionHelp, Run: runVersion,
	}, cli.Command{
		Name: "help", Synopsis: "twotier help [COMMAND]", Summary: "print this, or more about a command", Help: printHelp, Run: runHelp,
	})
}

// find returns the command of that name. The flags that ask any program for help or its version count as names.
func find(name string) (cli.Command, error) {
	switch name {
	case "-h", "-help", "--help":
		name = "help"
	case "-v", "-version", "--version":
		name = "version"
	}
	var names []string
	for _, c := range commands() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	err := fmt.Errorf("there is no command %q", name)
	if near := config.Nearest(name, names); near != "" {
		err = fmt.Errorf("there is no command %q; did you mean %s?", name, near)
	}
	return cli.Command{}, &cli.UsageError{Err: err}
}

const serveSynopsis = "twotier serve [--listen 127.0.0.1:8080] [--redis URL] [--config FILE] [flags]"

func runServe(ctx context.Context, o cli.IO, args []string) error {
	cfg, err := config.Parse(args, o.Environ)
	switch {
	case errors.Is(err, config.ErrHelp):
		return err
	case err != nil:
		return &cli.UsageError{Synopsis: serveSynopsis, Err: err}
	case cfg.PrintConfig:
		return cfg.Print(o.Stdout)
	}
	return serve(ctx, cfg, o.Stdout, o.Stderr)
}

func serveHelp(w io.Writer) error {
	var flags strings.Builder
	if err := config.PrintFlags(&flags); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, serveText, serveSynopsis, flags.String())
	return err
}

func runVersion(_ context.Context, o cli.IO, args []string) error {
	switch {
	case len(args) == 0:
		return printVersion(o.Stdout)
	case isHelp(args[0]):
		return flag.ErrHelp
	}
	return &cli.UsageError{Synopsis: "twotier version", Err: fmt.Errorf("unexpected argument %q", args[0])}
}

func runHelp(_ context.Context, o cli.IO, args []string) error {
	if len(args) == 0 || isHelp(args[0]) {
		return printHelp(o.Stdout)
	}
	c, err := find(args[0])
	if err != nil {
		return err
	}
	return c.Help(o.Stdout)
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }
