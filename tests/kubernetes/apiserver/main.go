// A Kubernetes control plane for tests: etcd, kube-apiserver and kube-controller-manager as roles of one binary.
//
//	apiserver etcd        --data-dir=... --listen-client-urls=...
//	apiserver apiserver   --etcd-servers=... --secure-port=...
//	apiserver controllers --kubeconfig=... --controllers=...
//
// Each role takes the flags of the program that it is, and nothing else; `tests/kubernetes/control_plane.py` starts them.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func run(command *cobra.Command, arguments []string) {
	command.SetArgs(arguments)
	os.Exit(cli.Run(command))
}

func main() {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "etcd":
		etcdmain.Main(append([]string{"etcd"}, os.Args[2:]...))
	case "apiserver":
		run(apiserver.NewAPIServerCommand(), os.Args[2:])
	case "controllers":
		run(controllers.NewControllerManagerCommand(), os.Args[2:])
	default:
		fmt.Fprintln(os.Stderr, "usage: apiserver etcd|apiserver|controllers [flags of that program]")
		os.Exit(2)
	}
}
