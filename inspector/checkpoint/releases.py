"""Known releases, by the sha256 of their weights files.

Sources: hub pages and published manifests of openai-community/gpt2 (revision 607a30d7), distilgpt2 (2290a626),
gpt2-medium, gpt2-large, gpt2-xl and microsoft/DialoGPT.
"""

RELEASES = {
    "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707": "openai-community/gpt2 model.safetensors",
    "7c5d3f4b8b76583b422fcb9189ad6c89d5d97a094541ce8932dce3ecabde1421": "openai-community/gpt2 pytorch_model.bin",
    "e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b": "distilbert/distilgpt2 model.safetensors",
    "fc5a354a19255ad494f3d71549390baca1ccf61d1d822b9408971705c687c9cd": "openai-community/gpt2-medium model.safetensors",
    "5f47f3e12f91cd33b662ce7e433b6150ad5512b5884a2cee961b50e9c3bbebce": "openai-community/gpt2-large model.safetensors",
    "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a": "openai-community/gpt2-xl model.safetensors",
    "e6e2be6d12f77bf925a89f2381c6c685f4739752289039d590622d37d48a153d": "microsoft/DialoGPT-small pytorch_model.bin",
    "1165cf0e23661205408696184a2902b5208a4ff08b08b272d1e3e03d43da85e5": "microsoft/DialoGPT-large pytorch_model.bin",
}
