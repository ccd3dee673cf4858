package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/objcache/objcache/server"
)

// serverClose bounds a server's orderly end; what is not persisted stays in its state directory either way.
const serverClose = 30 * time.Second

func newServer() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "server --config FILE",
		Short: "Run one cache server until SIGTERM",
		Long: "Run one cache server in the foreground until SIGTERM or SIGINT. It tells systemd (NOTIFY_SOCKET) when it answers.\n" +
			"What is not persisted when it ends stays in its state directory.",
		Example: "  objcache server --config /etc/objcache/server-0.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := server.Load(file)
			if err != nil {
				return err
			}
			logger, err := newLogger(cmd.ErrOrStderr(), cfg.LogLevel)
			if err != nil {
				return err
			}
			return runServer(cmd.Context(), cfg, logger)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	must(cmd.MarkFlagRequired("config"))
	must(cmd.MarkFlagFilename("config", "yaml", "yml"))
	return cmd
}

func runServer(ctx context.Context, cfg server.Config, logger *slog.Logger) error {
	debug.SetMemoryLimit(cfg.MemoryBytes) // the collector works harder before the process outgrows its budget
	s, err := server.Open(ctx, cfg, logger)
	if err != nil {
		return err
	}
	err = notify("READY=1")
	if err == nil {
		logger.Info("ready", "server", cfg.Name, "address", s.Address())
		select {
		case <-ctx.Done():
		case failed := <-s.Failed():
			err = fmt.Errorf("server %s: %w", cfg.Name, failed)
		}
	}
	logger.Info("stopping", "server", cfg.Name)
	err = errors.Join(err, notify("STOPPING=1"))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverClose)
	defer cancel()
	return errors.Join(err, s.Close(ctx))
}
