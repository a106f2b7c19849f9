package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
)

// statusOf returns the exit status for the error of a command, if any.
func statusOf(err error) int {
	_, usage := errors.AsType[*cli.UsageError](err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, cli.ErrRefused):
		return exitRefused
	case errors.Is(err, errNoCommand), usage:
		return exitUsage
	}
	return exitFailed
}

// reportError prints the error of a command, unless the command has done so. log is for servers
// whose stderr is for machines; nil means that people read it.
func reportError(stderr io.Writer, log *slog.Logger, cmd *cobra.Command, err error) {
	_, usage := errors.AsType[*cli.UsageError](err)
	switch {
	case err == nil, errors.Is(err, cli.ErrRefused), errors.Is(err, errNoCommand):
	case log != nil:
		log.Error(cmd.CommandPath(), "error", err, "status", statusOf(err))
	case usage && !cmd.HasParent():
		fmt.Fprintf(stderr, "twotier: %v\nusage: %s, twotier help lists the commands\n", err,
			cmd.UseLine())
	case usage:
		fmt.Fprintf(stderr, "%s: %v\nusage: %s\ntwotier help %s says more\n",
			cmd.CommandPath(), err,
			cmd.UseLine(), cmd.Name())
	default:
		fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
	}
}

// jsonErrorLog returns the logger for the final error of a server with --log-format json, so that
// its stderr is JSON from the first line to the last. It returns nil for everything else.
func jsonErrorLog(args, environ []string, stderr io.Writer) *slog.Logger {
	if len(args) == 0 || args[0] != "serve" || config.FindLogFormat(args[1:], environ) != "json" {
		return nil
	}
	return slog.New(slog.NewJSONHandler(stderr, nil))
}
